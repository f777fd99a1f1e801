//! Tokenizer, chat templates and the streaming detokeniser.
