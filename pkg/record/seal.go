package record

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// SealField is the field with a record's seal.
const SealField = "seal"

// ErrSeal says that a record was not written with the seal's key, or was written under another
// name, or was changed since.
var ErrSeal = errors.New("invalid seal")

// Seal authenticates a record with all its fields, including unknown ones, under a name:
// HMAC-SHA256 (RFC 2104) over the name and the sorted fields. Formatting and field order are
// irrelevant. It does not show that a record is the newest of its name. Safe for concurrent use.
type Seal struct{ key []byte }

// NewSeal returns the seal of a secret key.
func NewSeal(key []byte) Seal { return Seal{bytes.Clone(key)} }

// Format implements fmt.Formatter for every verb without revealing the key.
func (s Seal) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "seal") }

// Close returns the record with its seal, replacing an existing one. The body must be a JSON
// object.
func (s Seal) Close(name string, body []byte) ([]byte, error) {
	fields, order, err := fieldsOf(body)
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	if _, sealed := fields[SealField]; !sealed {
		order = append(order, SealField)
	}
	delete(fields, SealField)
	mark, err := json.Marshal(hex.EncodeToString(s.sum(name, fields)))
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	fields[SealField] = mark
	return assemble(fields, order)
}

// Open returns a record without its seal, or ErrSeal. The result has no duplicate fields.
func (s Seal) Open(name string, body []byte) ([]byte, error) {
	fields, order, err := fieldsOf(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSeal, err)
	}
	given, ok := fields[SealField]
	if !ok {
		return nil, fmt.Errorf("%w: the field %q is missing", ErrSeal, SealField)
	}
	delete(fields, SealField)
	var text string
	if err := json.Unmarshal(given, &text); err != nil {
		return nil, fmt.Errorf("%w: the field %q: %w", ErrSeal, SealField, err)
	}
	if mark, err := hex.DecodeString(text); err != nil || !hmac.Equal(mark, s.sum(name, fields)) {
		return nil, fmt.Errorf("%w: the record was changed, or belongs to another object or cluster", ErrSeal)
	}
	return assemble(fields, slices.DeleteFunc(order, func(field string) bool { return field == SealField }))
}

// assemble writes fields in the given order.
func assemble(fields map[string]json.RawMessage, order []string) ([]byte, error) {
	var out fieldWriter
	for _, field := range order {
		if err := out.add(field, fields[field]); err != nil {
			return nil, err
		}
	}
	return out.object(), nil
}

// sum prefixes each name and value with its length, so that the hashed text is unambiguous.
func (s Seal) sum(name string, fields map[string]json.RawMessage) []byte {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "%d:%s", len(name), name)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(h, "%d:%s%d:%s", len(field), field, len(fields[field]), fields[field])
	}
	return h.Sum(nil)
}

// fieldsOf parses a JSON object into its compact fields and their order. Duplicate names are an
// error, since readers differ in which one they use.
func fieldsOf(body []byte) (fields map[string]json.RawMessage, order []string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	start, err := d.Token()
	if err != nil {
		return nil, nil, fmt.Errorf("read a record: %w", err)
	}
	if start != json.Delim('{') {
		return nil, nil, fmt.Errorf("read a record: got %v, want an object", start)
	}
	fields = map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("read a record: %w", err)
		}
		name, _ := token.(string)
		if _, twice := fields[name]; twice {
			return nil, nil, fmt.Errorf("read a record: duplicate field %.80q", name)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, fmt.Errorf("read a record: field %.80q: %w", name, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, nil, fmt.Errorf("read a record: field %.80q: %w", name, err)
		}
		fields[name], order = compact.Bytes(), append(order, name)
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, fmt.Errorf("read a record: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("read a record: trailing data after the object")
	}
	return fields, order, nil
}
