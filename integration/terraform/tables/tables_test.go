package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `
# What follows is read.
variable "size" {
  type        = number
  description = "How many."
  default     = 2
}

variable "subnet" {
  description = <<-EOT
    Where: one | or
    the other.
  EOT
  type = object({
    id    = string # of AWS
    zones = optional(list(string), ["a, b",
    "c"])

    deep = map(object({ x = bool, y = number }))
  })
}

output "id" {
  value       = "x"
  description = "Its id."
}
`

const tables = `| input | type | default | what it is |
| --- | --- | --- | --- |
| ` + "`subnet` | `object({id = string, zones = optional(list(string), [\"a, b\", \"c\"]), deep = map(object({x = bool, y = number}))})`" +
	` | required | Where: one \| or the other. |
| ` + "`size` | `number` | `2`" + ` | How many. |

| output | what it is |
| --- | --- |
| ` + "`id`" + ` | Its id. |
`

// folder is a module with a README, and a test with its own.
func folder(t *testing.T, text, readme string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"one/main.tf": text, "one/README.md": readme, "one/tests/x/main.tf": "no Terraform {", "one/.terraform/modules/x.tf": "nor this {",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRun replaces the tables and keeps the rest, the second time too.
func TestRun(t *testing.T) {
	for _, before := range []string{"", "\n| old |\n\n"} {
		root := folder(t, source, "# One\n\n"+begin+"\n"+before+end+"\n\nmore\n")
		for range 2 {
			if err := run(root); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, "one", "README.md"))
			want := "# One\n\n" + begin + "\n\n" + tables + "\n" + end + "\n\nmore\n"
			if err != nil || string(got) != want {
				t.Errorf("the page is\n%s\nwant\n%s (%v)", got, want, err)
			}
		}
	}
}

// TestRefused: an error says why a table can't be written.
func TestRefused(t *testing.T) {
	marked := begin + "\n" + end + "\n"
	for want, of := range map[string][2]string{
		"variable x: description: want one":    {`variable "x" { type = string }`, marked},
		"variable x: type: want one":           {`variable "x" { description = "x" }`, marked},
		"output x: description: want a text":   {`output "x" { description = " " }`, marked},
		"Variables not allowed":                {`output "x" { description = var.x }`, marked},
		"Invalid single-argument block":        {`variable "x" { type = string description = "x" }`, marked},
		"want a line " + begin:                 {source, "# One\n"},
		"and, after it, a line " + end:         {source, end + "\n" + begin + "\n"},
		"variable y: description: want a text": {"variable \"y\" {\n type = string\n description = 3\n}", marked},
	} {
		if err := run(folder(t, of[0], of[1])); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, not %v", of[0], want, err)
		}
	}
	if err := run(t.TempDir()); err == nil {
		t.Error("a folder without modules is taken")
	}
}

// FuzzTables: a table has a row for each value, whatever its text.
func FuzzTables(f *testing.F) {
	f.Add(source)
	f.Add("variable \"x\" {\n type = map(any)\n description = \"a\\nb\"\n default = { \"a|b\" = [1, 2,] }\n}")
	f.Fuzz(func(t *testing.T, text string) {
		var all module
		if all.read("fuzz.tf", []byte(text)) != nil {
			return
		}
		if rows := strings.Count(all.tables(), "\n") - 5; rows != len(all.inputs)+len(all.outputs) {
			t.Errorf("%d rows for %d values:\n%s", rows, len(all.inputs)+len(all.outputs), all.tables())
		}
	})
}
