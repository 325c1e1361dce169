// Command policies writes docs/aws-iam.json, and the policies of the Terraform modules,
// from the table of what is called at AWS.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nstance/nstance/pkg/awsclient/iam"
)

// Where the policies go, from the root of the repository.
const (
	page   = "docs/aws-iam.json"
	module = "terraform/aws/account/policies"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func write() error {
	if err := os.MkdirAll(module, 0o755); err != nil {
		return err
	}
	all := map[string]iam.Policy{}
	for _, section := range iam.Sections() {
		all[section] = iam.Document(section)
		if err := put(filepath.Join(module, section+".json"), all[section]); err != nil {
			return err
		}
	}
	return put(page, all)
}

func put(path string, v any) error {
	text, err := iam.JSON(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
