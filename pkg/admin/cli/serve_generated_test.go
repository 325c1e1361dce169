package cli_test

import (
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// client generates a Go client from the document: a type for each schema, and a method for each
// operation whose answer has a field for each status.
func (d document) client(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("// Code generated from the OpenAPI document. DO NOT EDIT.\n\npackage main\n\n" +
		"import (\"net/http\"; \"time\")\n\nvar _ time.Time\n\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		fmt.Fprintf(&out, "type %s %s\n\n", name, d.goType(t, d.Components.Schemas[name]))
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			d.goOperation(t, &out, method, path, d.Paths[path][method])
		}
	}
	text, err := format.Source([]byte(out.String()))
	if err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return string(text)
}

// goName makes an exported name of parts separated by other characters than letters.
func goName(name string) string {
	var out strings.Builder
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == '$' }) {
		out.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return out.String()
}

// goType returns the Go type of a schema. Optional fields are pointers.
func (d document) goType(t *testing.T, s *schema) string {
	t.Helper()
	if s.Ref != "" {
		if d.resolve(s) == nil {
			t.Fatalf("there is no schema %s", s.Ref)
		}
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	}
	switch types := slices.DeleteFunc(s.types(), func(name string) bool { return name == "null" }); {
	case slices.Equal(types, []string{"array"}):
		return "[]" + d.goType(t, s.Items)
	case slices.Equal(types, []string{"boolean"}):
		return "bool"
	case slices.Equal(types, []string{"integer"}):
		return "int64"
	case slices.Equal(types, []string{"string"}) && s.Format == "date-time":
		return "time.Time"
	case slices.Equal(types, []string{"string"}):
		return "string"
	case !slices.Equal(types, []string{"object"}):
		t.Fatalf("the client can't have a value of type %v", s.Type)
	case len(s.Properties) == 0:
		return "map[string]any"
	}
	var out strings.Builder
	out.WriteString("struct {\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		pointer, omit := "*", ",omitempty"
		if slices.Contains(s.Required, name) {
			pointer, omit = "", ""
		}
		fmt.Fprintf(&out, "%s %s%s `json:\"%s%s\"`\n", goName(name), pointer, d.goType(t, s.Properties[name]), name, omit)
	}
	return out.String() + "}"
}

// goOperation writes the method of an operation.
func (d document) goOperation(t *testing.T, out *strings.Builder, method, path string, op documentOperation) {
	t.Helper()
	name := goName(op.ID)
	var params, fill strings.Builder
	for _, p := range op.Parameters {
		field := goName(p.Name)
		kind := d.goType(t, p.Schema)
		if !p.Required {
			kind = "*" + kind
		}
		fmt.Fprintf(&params, "%s %s\n", field, kind)
		fmt.Fprintf(&fill, "r.%s(%q, p.%s)\n", p.In, p.Name, field)
	}
	if op.RequestBody != nil {
		fmt.Fprintf(&params, "Body %s\n", d.goType(t, op.RequestBody.Content["application/json"].Schema))
		fill.WriteString("r.body = p.Body\n")
	}
	var answers, decoders strings.Builder
	for _, code := range slices.Sorted(maps.Keys(op.Responses)) {
		for media, content := range op.Responses[code].Content {
			if media == "text/event-stream" {
				continue
			}
			fmt.Fprintf(&answers, "S%s *%s\n", code, d.goType(t, content.Schema))
			fmt.Fprintf(&decoders, "case %s: return answer, decode(body, &answer.S%s)\n", code, code)
		}
		if len(op.Responses[code].Content) == 0 {
			fmt.Fprintf(&decoders, "case %s: return answer, nil\n", code)
		}
	}
	fmt.Fprintf(out, "type %sParams struct {\n%s}\n\ntype %sAnswer struct {\nStatus int\nHeader http.Header\n%s}\n\n", name, params.String(),
		name, answers.String())
	fmt.Fprintf(out, "func (c *Client) %s(p %sParams) (*%sAnswer, error) {\nr := request{method: %q, template: %q}\n%s"+
		"status, header, body, err := c.do(r)\nif err != nil { return nil, err }\nanswer := &%sAnswer{Status: status, Header: header}\n"+
		"switch status {\n%s}\nreturn nil, undocumented(status, body)\n}\n\n",
		name, name, name, strings.ToUpper(method), path, fill.String(), name, decoders.String())
}

// TestGeneratedClient: a client that is generated from the document compiles, and does what
// testdata/client does with it.
func TestGeneratedClient(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	c := newFixture(t).register()
	one, two := c.twoShards()
	two.fail(status.Error(codes.Internal, "its disk is full"))
	s := c.serve(c.tokens()...)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module client\n\ngo 1.26.0\n", "main.go": read(t, filepath.Join("testdata", "client", "main.go.txt")),
		"transport.go": read(t, filepath.Join("testdata", "client", "transport.go.txt")), "generated.go": s.document(t).client(t),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "client", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(filepath.Join(dir, "client"), s.url, fullToken, someInstance)
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.upserts) != 2 || len(one.created) != 1 || len(one.deleted) != 1 || len(one.acked) != 1 || one.groups["jobs"] != nil {
		t.Errorf("%d changes, %d creates, %d deletes, %d acknowledgements, jobs: %v", len(one.upserts), len(one.created), len(one.deleted),
			len(one.acked), one.groups["jobs"])
	}
}
