"""The experiments of the five papers, one file each: ``bidual reproduce --list``."""
