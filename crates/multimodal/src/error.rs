//! What may go wrong.

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bundle is damaged, or needs something that this build lacks.
    Model,
    /// The picture cannot be decoded, or has a shape that the model cannot take.
    Picture,
    /// The sound cannot be decoded, or is too short or too long.
    Sound,
    /// The picture, the film or the sound has more tokens than the context holds.
    TooManyTokens,
    /// It was stopped.
    Cancelled,
}

/// An error, in words for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// See [`ErrorKind::Model`].
    #[error("{0}")]
    Model(String),
    /// What the bundle's files are refused for.
    #[error(transparent)]
    Bundle(#[from] cactus_bundle::Error),
    /// What could not be computed.
    #[error(transparent)]
    Runtime(#[from] cactus_runtime::Error),
    /// What the engine refuses.
    #[error(transparent)]
    Engine(#[from] cactus_engine::Error),
    /// See [`ErrorKind::Picture`].
    #[error(transparent)]
    Picture(#[from] cactus_vision::Error),
    /// See [`ErrorKind::TooManyTokens`].
    #[error(
        "a picture of {width} x {height} pixels has {tokens} tokens, and the context holds {context}; make the picture smaller, or the context larger where the model allows it (`--context` of the command)"
    )]
    TooManyTokens {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Tokens of all its views.
        tokens: u64,
        /// Tokens that the context holds.
        context: usize,
    },
    /// See [`ErrorKind::TooManyTokens`].
    #[error(
        "a film of which {frames} frames are seen has {tokens} tokens, and the context holds {context}; let the model see fewer frames (`--video-frames` of the \
         command), or make the context larger where the model allows it (`--context`)"
    )]
    TooManyFrames {
        /// Frames that the model sees.
        frames: usize,
        /// Tokens of all of them.
        tokens: u64,
        /// Tokens that the context holds.
        context: usize,
    },
    /// See [`ErrorKind::Picture`].
    #[error("expected the time of each frame of a film, found {frames} frames and {times} times")]
    FilmTimes {
        /// Frames that are here.
        frames: usize,
        /// Their times.
        times: usize,
    },
    /// See [`ErrorKind::Picture`].
    #[error("frame {frame}: expected {} x {} pixels, as the first frame that is seen has, found {} x {}", first[0], first[1], found[0], found[1])]
    FrameSize {
        /// Which frame, from 1.
        frame: usize,
        /// Its width and height in pixels.
        found: [u32; 2],
        /// Those of the first.
        first: [u32; 2],
    },
    /// See [`ErrorKind::Sound`].
    #[error(transparent)]
    Sound(#[from] cactus_audio::Error),
    /// See [`ErrorKind::Sound`].
    #[error("{0}")]
    SoundLength(String),
    /// See [`ErrorKind::TooManyTokens`].
    #[error(
        "a sound of {seconds:.1} s has {tokens} tokens, and the context holds {context}; make the sound shorter, or the context larger where the model allows it (`--context` of the command)"
    )]
    TooManySeconds {
        /// Its length.
        seconds: f64,
        /// Its tokens.
        tokens: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// See [`ErrorKind::Cancelled`].
    #[error("it was cancelled")]
    Cancelled,
}

impl Error {
    /// The stable kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Picture(_) | Error::FilmTimes { .. } | Error::FrameSize { .. } => ErrorKind::Picture,
            Error::Sound(_) | Error::SoundLength(_) => ErrorKind::Sound,
            Error::TooManyTokens { .. } | Error::TooManyFrames { .. } | Error::TooManySeconds { .. } => {
                ErrorKind::TooManyTokens
            }
            Error::Cancelled => ErrorKind::Cancelled,
            Error::Model(_) | Error::Bundle(_) | Error::Runtime(_) | Error::Engine(_) => ErrorKind::Model,
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for cactus_engine::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(e) => e,
            Error::Bundle(e) => e.into(),
            Error::Runtime(e) => e.into(),
            other => cactus_engine::Error::Argument(other.to_string()),
        }
    }
}
