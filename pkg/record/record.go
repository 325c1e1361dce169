package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MaxNumber is the maximum epoch and rev of a readable record. A higher number is damage:
// increments never reach it, and tools that use floating-point numbers can't represent its
// successor.
const MaxNumber = 1 << 53

// CheckNumber returns an error for a number in a record that can only be damage. The error names
// field, value and limit.
func CheckNumber(field string, n uint64) error {
	if n > MaxNumber {
		return fmt.Errorf("%s: %d, want at most %d", field, n, uint64(MaxNumber))
	}
	return nil
}

// Unknown is the unknown fields of one record. The zero value has none. Immutable.
type Unknown struct {
	fields map[string]json.RawMessage // compact
	inside map[string]Unknown         // by the name of the field with the object
}

// IsZero reports whether there are no unknown fields.
func (u Unknown) IsZero() bool { return len(u.fields) == 0 && len(u.inside) == 0 }

// Names returns the sorted names; those in a nested object are prefixed with its name and a dot.
func (u Unknown) Names() []string {
	names := slices.Collect(maps.Keys(u.fields))
	for name, in := range u.inside {
		for _, below := range in.Names() {
			names = append(names, name+"."+below)
		}
	}
	slices.Sort(names)
	return names
}

// Decode decodes a record and its unknown fields. It fails if the body is not one JSON value,
// or a field's value does not fit T.
func Decode[T any](body []byte) (T, Unknown, error) {
	if v, ok := decodeKnown[T](body); ok {
		return v, Unknown{}, nil
	}
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return v, Unknown{}, err
	}
	unknown, err := Find[T](body)
	return v, unknown, err
}

// decodeKnown avoids the search for unknown fields in the usual case that there are none.
func decodeKnown[T any](body []byte) (v T, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if d.Decode(&v) != nil {
		return v, false
	}
	_, err := d.Token()
	return v, errors.Is(err, io.EOF)
}

// Encode returns the JSON of v with the unknown fields of the record: those of v first, in
// their order, then the unknown ones, sorted. It is deterministic. Unknown fields of a nested
// object are dropped if v no longer has that object.
func Encode(v any, unknown Unknown) ([]byte, error) {
	known, err := json.Marshal(v)
	if err != nil || unknown.IsZero() {
		return known, err
	}
	return unknown.addTo(known)
}

func (u Unknown) addTo(object []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("unknown fields can only be added to an object, this is %.40s", object)
	}
	var out fieldWriter
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if in, ok := u.inside[key]; ok && value[0] == '{' {
			if value, err = in.addTo(value); err != nil {
				return nil, err
			}
		}
		if err := out.add(key, value); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.fields)) {
		if err := out.add(name, u.fields[name]); err != nil {
			return nil, err
		}
	}
	return out.object(), nil
}

// fieldWriter writes an object field by field.
type fieldWriter struct{ bytes.Buffer }

func (w *fieldWriter) add(name string, value json.RawMessage) error {
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	if w.Len() > 0 {
		w.WriteByte(',')
	}
	w.Write(key)
	w.WriteByte(':')
	w.Write(value)
	return nil
}

func (w *fieldWriter) object() []byte { return slices.Concat([]byte("{"), w.Bytes(), []byte("}")) }
