"""`python -m triaxial`: the command `triax`, as `torchrun -m triaxial` starts it."""

from triaxial.cli import main

if __name__ == "__main__":
    main()
