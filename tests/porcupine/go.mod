module redlatch/porcupine

go 1.19

// The judge: a linearizability checker that others wrote, and by which the tests of etcd judge theirs.
require github.com/anishathalye/porcupine v1.3.1
