package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/nstance/nstance/pkg/record"
)

// moved is the object in which all tenants' groups were, once each tenant has one of
// its own. Groups is a text where versions that know nothing of that read an object:
// they find that it can't be read, and leave all groups as they are. Without the field
// they would read that there are no groups.
type moved struct {
	Header
	Moved  bool   `json:"moved"`
	Groups string `json:"groups"`
}

// Moved writes, in place of d, that its groups were moved into objects of their own,
// and where those are. What a newer version keeps in d beside the groups stays.
func (d Dynamic) Moved(h Header, to string) ([]byte, error) {
	compact, err := record.Encode(moved{Header: h, Moved: true, Groups: "moved to " + to}, d.unknown)
	if err != nil {
		return nil, fmt.Errorf("encode that dynamic groups have moved: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("encode that dynamic groups have moved: %w", err)
	}
	out.WriteByte('\n')
	if _, ok := ParseMoved(out.Bytes()); !ok && !d.unknown.IsZero() {
		return Dynamic{}.Moved(h, to) // what was kept there says something else of moved
	}
	return out.Bytes(), nil
}

// ParseMoved reads what Moved wrote, and reports whether data is that.
func ParseMoved(data []byte) (Header, bool) {
	root, err := parseSyntax(data)
	if err != nil {
		return Header{}, false
	}
	var raw struct {
		Epoch  uint64 `json:"epoch"`
		Rev    uint64 `json:"rev"`
		Writer string `json:"writer"`
		Moved  bool   `json:"moved"`
		Groups string `json:"groups"`
	}
	d := newDecoder(data)
	d.tolerant = true
	d.decode("", root, reflect.ValueOf(&raw).Elem())
	return Header{Epoch: raw.Epoch, Rev: raw.Rev, Writer: raw.Writer}, raw.Moved && len(d.problems) == 0
}
