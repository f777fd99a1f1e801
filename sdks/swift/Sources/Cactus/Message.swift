import Foundation

/// A message of a conversation, as the OpenAI API has it.
public struct Message: Sendable, Hashable {
    /// What the library gets, with everything that has no name here.
    public var json: JSON

    public init(json: JSON) {
        self.json = json
    }

    public init(role: String, content: String) {
        json = ["role": .string(role), "content": .string(content)]
    }

    public var role: String { json["role"]?.string ?? "" }
    /// Its text; of a content in parts, the texts one after the other.
    public var content: String {
        switch json["content"] {
        case .string(let text)?: text
        case .array(let parts)?: parts.compactMap { $0["text"]?.string }.joined()
        default: ""
        }
    }

    public static func system(_ text: String) -> Message { Message(role: "system", content: text) }
    public static func user(_ text: String) -> Message { Message(role: "user", content: text) }
    public static func assistant(_ text: String) -> Message { Message(role: "assistant", content: text) }

    /// Text, pictures and sounds of the user.
    public static func user(_ parts: [Part]) -> Message {
        Message(json: ["role": "user", "content": .array(parts.map(\.json))])
    }

    /// What a tool has given.
    public static func tool(_ result: String, callID: String) -> Message {
        Message(json: ["role": "tool", "tool_call_id": .string(callID), "content": .string(result)])
    }

    /// A part of a message.
    public struct Part: Sendable, Hashable {
        public var json: JSON

        public init(json: JSON) {
            self.json = json
        }

        public static func text(_ text: String) -> Part {
            Part(json: ["type": "text", "text": .string(text)])
        }

        /// The bytes of a PNG, JPEG or WebP file.
        public static func picture(_ file: Data) -> Part {
            Part(json: ["type": "image", "data": .string(file.base64EncodedString())])
        }

        /// The bytes of a sound file: WAV, MP3, FLAC, Ogg or M4A.
        public static func sound(_ file: Data) -> Part {
            Part(json: ["type": "audio", "data": .string(file.base64EncodedString())])
        }

        /// Samples: mono, 16,000 a second.
        public static func sound(samples: [Int16]) -> Part {
            sound(wave(samples))
        }
    }
}

/// A WAV file of mono samples of 16 bits, 16,000 a second.
func wave(_ samples: [Int16]) -> Data {
    var file = Data()
    func put(_ text: String) { file.append(contentsOf: text.utf8) }
    func put<T: FixedWidthInteger>(_ value: T) { withUnsafeBytes(of: value.littleEndian) { file.append(contentsOf: $0) } }
    let (rate, bytes) = (UInt32(16_000), UInt32(samples.count * 2))
    put("RIFF")
    put(36 + bytes)
    put("WAVEfmt ")
    put(UInt32(16))
    put(UInt16(1))
    put(UInt16(1))
    put(rate)
    put(rate * 2)
    put(UInt16(2))
    put(UInt16(16))
    put("data")
    put(bytes)
    samples.forEach { put($0) }
    return file
}
