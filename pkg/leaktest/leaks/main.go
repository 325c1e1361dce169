// Command leaks runs a test binary as leaktest.Main does, for modules that can't import
// that: go test -exec leaks. It ends with the code of the tests, or with 1 where they left
// something behind.
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
