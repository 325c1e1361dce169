// Command stub is a stand-in for the provider hashicorp/aws: it knows the types that the modules in
// terraform/ use, and creates nothing. Terraform and OpenTofu start it themselves if dev_overrides
// names its folder (docs/terraform-checks.md).
package main

import (
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
	"github.com/nstance/nstance/integration/terraform/stub/provider"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

func run() error {
	types, err := catalog.Load()
	if err != nil {
		return err
	}
	server, err := provider.New(types)
	if err != nil {
		return err
	}
	return tf5server.Serve("registry.terraform.io/hashicorp/aws", func() tfprotov5.ProviderServer { return server })
}
