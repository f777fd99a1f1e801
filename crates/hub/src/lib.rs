//! Find, fetch, verify and cache models.
