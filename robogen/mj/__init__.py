"""The only code that touches mjModel and mjData fields, element ids and OpenGL."""
