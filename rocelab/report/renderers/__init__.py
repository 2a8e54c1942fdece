"""A `rocelab.report.document.Document` on a terminal, as a page and as Markdown."""
