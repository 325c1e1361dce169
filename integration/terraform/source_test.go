package terraform_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// complaints returns what a module's file must not have: inputs of type any, without description or
// validation, and settings that belong to the module's caller.
func complaints(name string, text []byte) []string {
	file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if diags.HasErrors() {
		return []string{diags.Error()}
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return []string{name + ": want Terraform's native syntax"}
	}
	var out []string
	complain := func(block *hclsyntax.Block, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s: %s %s: ", name, block.Type, strings.Join(block.Labels, "."))+fmt.Sprintf(format, args...))
	}
	for _, block := range body.Blocks {
		switch block.Type {
		case "provider", "moved", "import":
			complain(block, "want none in a module")
		case "terraform":
			for _, inner := range block.Body.Blocks {
				if inner.Type != "required_providers" {
					complain(inner, "want it where the module is called")
				}
			}
		case "variable", "output":
			if attr := block.Body.Attributes["description"]; attr == nil || blank(attr.Expr) {
				complain(block, "want a description")
			}
			if block.Type == "variable" {
				variable(block, func(format string, args ...any) { complain(block, format, args...) })
			}
		default:
		}
	}
	return out
}

func blank(expr hclsyntax.Expression) bool {
	value, diags := expr.Value(nil)
	return !diags.HasErrors() && (value.Type() != cty.String || strings.TrimSpace(value.AsString()) == "")
}

// variable checks an input. A string or a number needs a validation, since some are invalid, and so
// does a type that contains one; names and values of tags and of vars may be any.
func variable(block *hclsyntax.Block, complain func(string, ...any)) {
	attr := block.Body.Attributes["type"]
	if attr == nil {
		complain("want a type")
		return
	}
	for _, part := range attr.Expr.Variables() {
		if part.RootName() == "any" {
			complain("want a type that says what it takes, not any")
		}
	}
	var validated bool
	for _, inner := range block.Body.Blocks {
		validated = validated || inner.Type == "validation"
	}
	switch typ := hcl.ExprAsKeyword(attr.Expr); {
	case validated, typ == "bool", block.Labels[0] == "tags", block.Labels[0] == "vars":
	default:
		complain("want a validation")
	}
}

// The versions of the provider that the modules accept. Older 6.x versions revert a block of the
// bucket at each plan.
const (
	lowestProvider = "6.40"
	taken          = `version = ">= ` + lowestProvider + `, < 7"`
)

// TestProviderVersions: modules and examples accept the same versions of the provider, and the
// workflow checks them with the lowest.
func TestProviderVersions(t *testing.T) {
	var seen int
	err := filepath.WalkDir(filepath.Join("..", "..", "terraform"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "versions.tf" {
			return err
		}
		seen++
		text, err := os.ReadFile(path)
		if !strings.Contains(string(text), taken) {
			t.Errorf("%s: want %s", path, taken)
		}
		return err
	})
	if err != nil || seen < 7 {
		t.Errorf("there are %d files: %v", seen, err)
	}
	workflow, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "terraform.yaml"))
	if err != nil || !strings.Contains(string(workflow), `provider: "`+lowestProvider+`.0"`) {
		t.Errorf("the workflow has no row with the provider %s.0 (%v)", lowestProvider, err)
	}
}

// TestSources: the modules' files have no complaints.
func TestSources(t *testing.T) {
	root := filepath.Join("..", "..", "terraform", "aws")
	var modules []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".terraform":
			return filepath.SkipDir
		case filepath.Ext(path) != ".tf":
			return nil
		}
		if folder := filepath.Dir(path); !slices.Contains(modules, folder) {
			modules = append(modules, folder)
		}
		text, err := os.ReadFile(path)
		for _, complaint := range complaints(path, text) {
			t.Error(complaint)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 5 {
		t.Errorf("there are only %v", modules)
	}
	for _, folder := range modules {
		text, err := os.ReadFile(filepath.Join(folder, "versions.tf"))
		if err != nil || !strings.Contains(string(text), "required_version") || !strings.Contains(string(text), "required_providers") {
			t.Errorf("%s: want the versions of Terraform and of the provider in versions.tf (%v)", folder, err)
		}
	}
}

// TestExampleIsShort, so that a beginner can read it at once.
func TestExampleIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "terraform", "examples", "single-shard", "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines >= 60 {
		t.Errorf("the example of one shard has %d lines, want fewer than 60", lines)
	}
}

// TestComplaints: each forbidden construct is found, and nothing else.
func TestComplaints(t *testing.T) {
	const described = `description = "What it is."` + "\n"
	for text, want := range map[string]string{
		`provider "aws" {}`:                                                            "want none in a module",
		"terraform {\n backend \"s3\" {}\n}":                                           "want it where the module is called",
		"variable \"x\" {\n" + described + "}":                                         "want a type",
		"variable \"x\" {\n type = bool\n}":                                            "want a description",
		"variable \"x\" {\n type = bool\n description = \" \"\n}":                      "want a description",
		"variable \"x\" {\n" + described + "type = any\n}":                             "not any",
		"variable \"x\" {\n" + described + "type = object({ a = map(any) })\n":         "not any",
		"variable \"x\" {\n" + described + "type = string\n}":                          "want a validation",
		"variable \"x\" {\n" + described + "type = list(number)\n}":                    "want a validation",
		"variable \"x\" {\n" + described + "type = object({ a = string })\n}":          "want a validation",
		"output \"x\" {\n value = 1\n}":                                                "want a description",
		"variable \"x\" {\n" + described + "type = bool\n}":                            "",
		"variable \"tags\" {\n" + described + "type = map(string)\n}":                  "",
		"variable \"x\" {\n" + described + "type = string\n validation {\n }\n}":       "",
		"output \"x\" {\n value = 1\n" + described + "}":                               "",
		"terraform {\n required_version = \">= 1.11\"\n required_providers {\n }\n}\n": "",
	} {
		if strings.Contains(text, "map(any)") {
			text += "validation {\n }\n}"
		}
		got := strings.Join(complaints("x.tf", []byte(text)), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") && want != "not any" {
			t.Errorf("%s\nis judged %q, want %q", text, got, want)
		}
	}
}
