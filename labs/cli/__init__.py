"""The command line of a lab: thin commands over `labs.lab`, each with its table or JSON."""
