"""Other libraries: Hugging Face transformers, Lightning and Ray. Import the module of the library that you use."""
