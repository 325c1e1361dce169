package httpapi

import (
	"bytes"
	_ "embed" // for the files of this package
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.css
var docsStyle []byte

//go:embed docs.html
var docsTemplate string

// shownOperation is an operation as the page of the API shows it.
type shownOperation struct {
	*huma.Operation
	Answers []shownAnswer
	Body    string // schema as JSON
}

type shownAnswer struct{ Status, Description, Types string }

// docsPage renders the document as a page without scripts.
func docsPage(doc *huma.OpenAPI) ([]byte, error) {
	var operations []shownOperation
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			shown, err := show(op)
			if err != nil {
				return nil, err
			}
			operations = append(operations, shown)
		}
	}
	slices.SortFunc(operations, func(x, y shownOperation) int {
		return strings.Compare(x.Path+methodOrder(x.Method), y.Path+methodOrder(y.Method))
	})
	schemas, err := schemasAsJSON(doc)
	if err != nil {
		return nil, err
	}
	t, err := template.New("docs").Parse(docsTemplate)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Info": doc.Info, "Operations": operations, "Schemas": schemas})
	return out.Bytes(), err
}

// methodOrder sorts reads before changes.
func methodOrder(method string) string {
	if method == http.MethodGet {
		return " "
	}
	return method
}

func show(op *huma.Operation) (shownOperation, error) {
	shown := shownOperation{Operation: op}
	for status, r := range op.Responses {
		a := shownAnswer{Status: status, Description: r.Description}
		for media, content := range r.Content {
			a.Types = media + " " + typeName(content.Schema)
		}
		shown.Answers = append(shown.Answers, a)
	}
	slices.SortFunc(shown.Answers, func(x, y shownAnswer) int { return strings.Compare(x.Status, y.Status) })
	if op.RequestBody != nil {
		body, err := json.MarshalIndent(op.RequestBody.Content["application/json"].Schema, "", "  ")
		if err != nil {
			return shown, err
		}
		shown.Body = string(body)
	}
	return shown, nil
}

// typeName names the type of a schema.
func typeName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Type == huma.TypeArray:
		return "array of " + typeName(s.Items)
	default:
		return s.Type
	}
}

type shownSchema struct{ Name, Text string }

func schemasAsJSON(doc *huma.OpenAPI) (all []shownSchema, err error) {
	for name, s := range doc.Components.Schemas.Map() {
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return nil, err
		}
		all = append(all, shownSchema{name, string(text)})
	}
	slices.SortFunc(all, func(x, y shownSchema) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}
