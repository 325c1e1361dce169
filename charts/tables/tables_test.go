package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `# The page.

# How many.
size: 2
group:
  # One | or
  # the other.
  #
  # - an example
  list: [a,
    "b"]
  deep:
    # Text.
    text: ""
# What a pod asks for.
resources:
  limits: # not more
    memory: 1Gi
`

const want = "| value | default | what it is |\n| --- | --- | --- |\n" +
	"| `size` | `2` | How many. |\n" +
	"| `group.list` | `[a, \"b\"]` | One \\| or the other. |\n" +
	"| `group.deep.text` | `\"\"` | Text. |\n" +
	"| `resources` | `{limits: {memory: 1Gi}}` | What a pod asks for. |\n"

// folder is a chart with values and a README.
func folder(t *testing.T, values, readme string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"values.yaml": values, "README.md": readme} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRun writes the table between its lines and leaves the rest, the second time too.
func TestRun(t *testing.T) {
	for _, before := range []string{"", "\n| old |\n\n"} {
		root := folder(t, source, "# One\n\n"+begin+"\n"+before+end+"\n\nmore\n")
		for range 2 {
			if err := run(root); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, "README.md"))
			page := "# One\n\n" + begin + "\n\n" + want + "\n" + end + "\n\nmore\n"
			if err != nil || string(got) != page {
				t.Errorf("the page is\n%s\nwant\n%s (%v)", got, page, err)
			}
		}
	}
}

// TestRefused: what can't be written says why.
func TestRefused(t *testing.T) {
	marked := begin + "\n" + end + "\n"
	for said, of := range map[string][2]string{
		"a.c: want a comment above it": {"a:\n  # B.\n  b: 1\n  c: 2\n", marked},
		"want a mapping of values":     {"[]", marked},
		"want a line " + begin:         {source, "# One\n"},
		"a line " + end:                {source, end + "\n" + begin + "\n"},
	} {
		if err := run(folder(t, of[0], of[1])); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: want an error with %q, not %v", of[0], said, err)
		}
	}
}
