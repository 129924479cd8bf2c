"""The command line: each command parses, calls one public function and prints."""
