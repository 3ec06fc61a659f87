"""Language models from everything that a user may pass, each as a `dspy.LM`.

To add a source of models, write a function that makes a `dspy.LM`, and add it to `MODEL_SOURCES` in
`judges/models/names.py`.
"""
