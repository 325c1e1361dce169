package shardgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/types/known/structpb"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// annotationVars is the digest of the last vars that the shard accepted. It is not in the
// status, since it has to survive a backup and a move.
const annotationVars = "nstance.dev/pushed-vars"

// values decodes vars into plain Go values.
func values(vars v1beta1.Vars) (map[string]any, error) {
	out := make(map[string]any, len(vars))
	for name, v := range vars {
		var value any
		if err := json.Unmarshal(v.Raw, &value); err != nil {
			return nil, fmt.Errorf("spec.vars.%s: want JSON: %w", name, err)
		}
		out[name] = value
	}
	return out, nil
}

func toStruct(vars v1beta1.Vars) (*structpb.Struct, error) {
	plain, err := values(vars)
	if err != nil {
		return nil, err
	}
	s, err := structpb.NewStruct(plain)
	if err != nil {
		return nil, fmt.Errorf("spec.vars: %w", err)
	}
	return s, nil
}

func fromStruct(s *structpb.Struct) v1beta1.Vars {
	if len(s.GetFields()) == 0 {
		return nil
	}
	out := v1beta1.Vars{}
	for name, v := range s.AsMap() {
		raw, err := json.Marshal(v)
		if err != nil { // a number without a JSON form
			raw = []byte("null")
		}
		out[name] = apiextensionsv1.JSON{Raw: raw}
	}
	return out
}

// sameVars reports whether two vars are equal as JSON values.
func sameVars(a, b v1beta1.Vars) bool {
	x, errX := values(a)
	y, errY := values(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// holds reports whether merging over into base would change nothing.
func holds(base, over map[string]any) bool {
	for name, v := range over {
		below, ok := base[name]
		if !ok {
			return false
		}
		inner, isObject := v.(map[string]any)
		beneath, both := below.(map[string]any)
		if isObject && both {
			if !holds(beneath, inner) {
				return false
			}
		} else if !reflect.DeepEqual(below, v) {
			return false
		}
	}
	return true
}

// digest returns a hash of vars. Invalid JSON has its own.
func digest(vars v1beta1.Vars) string {
	plain, err := values(vars)
	if err != nil {
		return "invalid"
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return "invalid"
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
