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

// MaxNumber is the highest epoch and the highest rev of a record that can be read. A
// higher one is damage: counting one by one never comes to it, and tools that take every
// number for a float can't write what follows it.
const MaxNumber = 1 << 53

// CheckNumber refuses a number in a record that can only be damage. The error names field,
// value and limit.
func CheckNumber(field string, n uint64) error {
	if n > MaxNumber {
		return fmt.Errorf("%s: %d, want at most %d", field, n, uint64(MaxNumber))
	}
	return nil
}

// Unknown are the fields of one record that this version has no name for. The
// zero value has none. It is never changed in place.
type Unknown struct {
	fields map[string]json.RawMessage // compact
	inside map[string]Unknown         // by the name of the field that holds an object
}

// IsZero reports whether there are none.
func (u Unknown) IsZero() bool { return len(u.fields) == 0 && len(u.inside) == 0 }

// Names lists them, those in an object after its name and a dot, sorted.
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

// Decode reads a record and what it holds beside the fields of T. It fails when
// the body is not one JSON value, or a field has a value that T can't take.
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

// decodeKnown spares the search where there is nothing to be found, which is
// nearly always.
func decodeKnown[T any](body []byte) (v T, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if d.Decode(&v) != nil {
		return v, false
	}
	_, err := d.Token()
	return v, errors.Is(err, io.EOF)
}

// Encode writes v and the fields that were found when the record was read: those
// of v first, in their order, then the unknown ones, sorted. Equal arguments give
// equal bytes. An unknown field goes with the object that it was in: where v has
// no such object any more, it is dropped.
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
