"""Models for other libraries: each module is one library's interface over `cactus.Model`, and needs that library."""
