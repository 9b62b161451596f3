"""Fuzzing of the readers of foreign input: from servers, e-mails, files and peers.

    mutate      case number i of a seed: sound input, changed with the words of its format
    target      one reader, its sound input, and the errors that it documents
    oracle      the judge of one case: a value or a documented error, in linear steps and memory
    virtual     an event loop in virtual time, and connections whose other end is a function
    mail_targets, visit_targets, file_targets, control_targets    the targets
    work        processes that run cases until time is up, and their findings, made smaller

`PYTHONPATH=tests:tests/support python -m fuzz --seconds 60` runs all targets; `--target T --seed S --case N` repeats
one case.
"""
