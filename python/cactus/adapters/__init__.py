"""Models and indexes for other libraries: each module is one library's interface over `cactus.Model`, `cactus.Embedder`, `cactus.Reranker`
and `cactus.Index`, and needs that library."""
