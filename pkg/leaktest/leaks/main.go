// Command leaks runs a test binary as leaktest.Main does, for modules that can't import it: go
// test -exec leaks. It exits with the tests' exit code, or with 1 if they left something
// behind.
package main

import (
	"fmt"
	"os"

	"github.com/nstance/nstance/pkg/leaktest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "leaks: want a test binary and its arguments")
		os.Exit(2)
	}
	os.Exit(leaktest.Command(os.Args[1], os.Args[2:]))
}
