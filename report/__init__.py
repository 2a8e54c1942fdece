"""A drill's result for people: terminal tables and one self-contained HTML page."""
