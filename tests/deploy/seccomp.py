"""Put the system call filter of a unit in force in this process; it needs libseccomp.

It reads the names of allowed calls from the variable ALLOWED. Other calls fail with EPERM. No memory may be
written and executed, as `MemoryDenyWriteExecute` has it.
"""

import ctypes
import os

EPERM, ALLOW, ERRNO = 1, 0x7FFF0000, 0x00050000
WRITE, EXECUTE, MASKED_EQUAL = 2, 4, 7
PROTECTION = 2  # which argument of mmap and mprotect says what the memory is for


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`: an argument, a way to compare, a mask, a value."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("way", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def load(allowed: list[str]) -> None:
    """Allow these calls alone, for this process and all that it starts."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ERRNO | EPERM)))
    kinds = {
        "mmap": [(WRITE | EXECUTE, 0), (WRITE | EXECUTE, WRITE), (WRITE | EXECUTE, EXECUTE)],
        "mprotect": [(EXECUTE, 0)],
    }
    for name in allowed:
        number = library.seccomp_syscall_resolve_name(name.encode())
        for mask, value in kinds.get(name, []):
            one = Comparison(PROTECTION, MASKED_EQUAL, mask, value)
            assert library.seccomp_rule_add_array(rules, ALLOW, number, 1, ctypes.byref(one)) == 0
        if name not in kinds and number >= 0:  # calls of other machines have no number here
            assert library.seccomp_rule_add_array(rules, ALLOW, number, 0, None) == 0
    assert library.seccomp_load(rules) == 0


if "ALLOWED" in os.environ:
    load(os.environ["ALLOWED"].split())
