package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ParseOnDemand parses a pod policy from a JSON object. Unknown fields are errors, as a
// misspelt bound would not bound anything.
func ParseOnDemand(text string) (*nstancev1.OnDemand, error) {
	policy := &fleet.OnDemand{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(policy)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("data after the object")
		}
	}
	if err == nil && !strings.HasPrefix(strings.TrimSpace(text), "{") {
		err = errors.New("not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%.200q is not valid: %w: want a JSON object with namespaces, namespace_labels, instance_types, max, "+
			"max_per_namespace", text, err)
	}
	var wrong []string
	policy.Check(func(path, message string) { wrong = append(wrong, path+": "+message) })
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return &nstancev1.OnDemand{
		Namespaces: policy.Namespaces, NamespaceLabels: policy.NamespaceLabels, InstanceTypes: policy.InstanceTypes,
		Max: int32(policy.Max), MaxPerNamespace: int32(policy.MaxPerNamespace),
	}, nil
}
