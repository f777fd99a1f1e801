"""PyTorch and JAX models as bundles of the cactus program.

Purpose: everything that needs the model as Python code. `capture_pytorch` turns a module into a captured program,
`lower` makes a bundle of it and runs that, `model_adapters` knows how families are called, `sources` finds the model
behind a name, `compare` holds the result to PyTorch, `pipeline` is the command as a whole. `capture_jax` and
`jax_user_graph_bundle` do the same for JAX functions.

What is handed over is a `.pt2` archive: the cactus program reads it without Python, so nothing here rewrites, fuses or
quantizes. The only way to the program is `program`. Torch, transformers and jax are imported where they are used: this
package itself needs NumPy alone.
"""
