package admin

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonOf returns one JSON object with the fields of all parts in their order. Each part is a
// struct, or a message, which has the protocol's field names, and also fields that are zero, so
// that scripts find them.
func jsonOf(parts ...any) ([]byte, error) {
	asProto := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
	var fields [][]byte
	for _, part := range parts {
		text, err := json.Marshal(part)
		if m, ok := part.(proto.Message); ok {
			text, err = asProto.Marshal(m)
		}
		if err != nil {
			return nil, fmt.Errorf("format as JSON: %w", err)
		}
		if inner := bytes.TrimSpace(text[1 : len(text)-1]); len(inner) > 0 {
			fields = append(fields, inner)
		}
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(fields, []byte{','})), nil
}

// withoutField returns a JSON object without one of its fields.
func withoutField(object []byte, name string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("format as JSON: %w", err)
	}
	var fields [][]byte
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("format as JSON: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("format as JSON: %w", err)
		}
		if key != name {
			fields = append(fields, fmt.Appendf(nil, "%q:%s", key, value))
		}
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(fields, []byte{','})), nil
}

// inShard is the field that the shard's answers have before those of their message.
type inShard struct {
	Shard string `json:"shard"`
}
