"""Other libraries: Hugging Face transformers and Lightning. Import the module of the library that you use."""
