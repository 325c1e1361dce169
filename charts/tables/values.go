package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// value is a row of the table.
type value struct {
	name, fallback, description string
}

// read returns the values of a values.yaml in order.
func read(text []byte) ([]value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("want a mapping of values")
	}
	return within("", document.Content[0])
}

// within returns the values of a mapping. A nested mapping is a single value if none of its
// keys has a comment, and a group of values otherwise.
func within(path string, mapping *yaml.Node) ([]value, error) {
	var all []value
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		name := path + key.Value
		if group(node) {
			inner, err := within(name+".", node)
			if err != nil {
				return nil, err
			}
			all = append(all, inner...)
			continue
		}
		one := value{name: name, description: described(key.HeadComment)}
		if one.description == "" {
			return nil, fmt.Errorf("%s: want a comment above it", name)
		}
		written, err := flow(node)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		one.fallback = written
		all = append(all, one)
	}
	return all, nil
}

func group(node *yaml.Node) bool {
	if node.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].HeadComment != "" || group(node.Content[i+1]) {
			return true
		}
	}
	return false
}

// described returns a comment up to its first empty line.
func described(comment string) string {
	var lines []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if line == "" {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " ")
}

// flow formats a value in one line.
func flow(node *yaml.Node) (string, error) {
	plain := bare(node)
	plain.Style |= yaml.FlowStyle
	text, err := yaml.NewRNode(plain).String()
	return strings.Join(strings.Fields(text), " "), err
}

// bare copies a value without comments, with all parts in flow style.
func bare(node *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style}
	if node.Kind != yaml.ScalarNode {
		out.Style = yaml.FlowStyle
	}
	for _, part := range node.Content {
		out.Content = append(out.Content, bare(part))
	}
	return out
}

func table(values []value) string {
	var out strings.Builder
	out.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range values {
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", cell(v.name), cell(v.fallback), cell(v.description))
	}
	return out.String()
}

// cell escapes a text for a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
