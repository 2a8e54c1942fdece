"""The command line of a lab: thin commands over `rocelab.lab.lab`, each with its table or
JSON."""
