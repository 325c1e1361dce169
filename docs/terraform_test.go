package docs_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// notSettings are the fields of `server` that the Terraform module for a shard has other variables for.
var notSettings = regexp.MustCompile(`^(provider|bind|advertise|leader_network|subnet_pools|dynamic_subnet_pools)\b`)

// TestTerraformSettings: the variable `settings` of the module for a shard has every field of `server` that no
// other variable has. Terraform drops fields that a variable's type does not name, without an error.
func TestTerraformSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "terraform", "aws", "shard", "variables_config.tf"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), `variable "settings"`)
	block, _, ends := strings.Cut(block, "description")
	if !found || !ends {
		t.Fatal("there is no variable settings")
	}
	fields := map[string]bool{}
	fieldsOf("", reflect.TypeFor[config.Server](), fields)
	has := settingsOf(block)
	for field := range fields {
		if !notSettings.MatchString(field) && !has[field] {
			t.Errorf("settings has no field %s", field)
		}
	}
	for field := range has {
		if !fields[field] {
			t.Errorf("settings has the field %s, which `server` does not have", field)
		}
	}
	if len(has) < 20 {
		t.Errorf("settings has %d fields: some were not found", len(has))
	}
}

// settingsOf returns the paths of the fields in the type of a variable.
func settingsOf(block string) map[string]bool {
	fields, parent := map[string]bool{}, ""
	for _, m := range regexp.MustCompile(`([a-z_]+)\s*=\s*optional\((object)?|\}\)`).FindAllStringSubmatch(block, -1) {
		switch {
		case m[1] == "":
			parent = ""
		case m[2] != "":
			parent = m[1] + "."
		default:
			fields[parent+m[1]] = true
		}
	}
	return fields
}
