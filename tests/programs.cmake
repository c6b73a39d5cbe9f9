# Tests that run whole programs: the command line and the installed package.
