"""Language models from names, functions and LangChain, each as a `dspy.LM`."""
