"""Texts by what they mean.

python 09-embed-and-search.py EMBEDDER FOLDER
"""

import sys
from pathlib import Path

import cactus

texts = ["The river is quick.", "Bread is baked.", "Rain falls on the hill."]
with cactus.Embedder.load(sys.argv[1]) as embedder:
    # One file, which is there again the next time.
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    index = cactus.Index(Path(sys.argv[2]) / "notes.index", dimensions=embedder.dimensions)
    index.upsert(["river", "bread", "rain"], embedder.embed_documents(texts), texts=texts, metadata=[{"chapter": 1}] * 3)
    for hit in index.search(embedder.embed_query("water"), k=2):
        print(f"{hit.score:.3f} {hit.text}")
