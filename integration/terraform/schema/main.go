// Command schema compares the types of the stub with those of the real provider, so that the stub
// doesn't confirm its own errors:
//
//	go run ./schema FILE
//
// FILE is the output of `terraform providers schema -json` where the real provider is installed,
// "-" for the standard input. Each line of the output is a difference; there must be none.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schema FILE: want what `terraform providers schema -json` says")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(name string, out io.Writer) error {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	theirs, err := read(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ours, err := catalog.Load()
	if err != nil {
		return err
	}
	found := differences(ours, theirs)
	for _, one := range found {
		fmt.Fprintln(out, one)
	}
	if len(found) > 0 {
		return fmt.Errorf("the stub differs in %d places from the provider: correct stub/catalog/aws", len(found))
	}
	fmt.Fprintf(out, "%d types of the stub are as the provider has them\n", len(ours.Resources)+len(ours.Data)+len(ours.Ephemeral))
	return nil
}
