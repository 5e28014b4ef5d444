"""Files: atomic writes, artefacts and files of outputs."""
