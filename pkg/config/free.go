package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tailscale/hujson"
)

// maxExact is the bound up to which float64 represents every whole number exactly.
const maxExact = 1 << 53

// free decodes a value of arbitrary shape: args, vars, the content of a file. Whole numbers
// become int64 and others float64, so that 1000000 renders as written, and 1 and 1.0 hash the
// same.
func (d *decoder) free(path string, v hujson.Value) any {
	switch value := v.Value.(type) {
	case *hujson.Object:
		object := map[string]any{}
		for name, member := range d.members(path, v) {
			object[name] = d.free(join(path, name), member)
		}
		return object
	case *hujson.Array:
		list := make([]any, 0, len(value.Elements))
		for i, element := range value.Elements {
			list = append(list, d.free(at(path, i), element))
		}
		return list
	case hujson.Literal:
		return d.freeLiteral(path, value)
	}
	return nil
}

func (d *decoder) freeLiteral(path string, literal hujson.Literal) any {
	switch literal.Kind() {
	case '"':
		return literal.String()
	case 't', 'f':
		return literal.Bool()
	case '0':
		n, err := parseNumber(string(literal))
		if err != nil {
			d.failf(path, "%v", err)
			return nil
		}
		return n
	}
	return nil
}

func parseNumber(s string) (any, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && (n > maxExact || n < -maxExact) {
		return nil, fmt.Errorf("%.80s is too large to be kept exactly: write it as a string", s)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("%.80s is outside the range of numbers", s)
	}
	return number(f), nil
}

func number(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) <= maxExact {
		return int64(f)
	}
	return f
}

// leaves yields the values in a value that are neither objects nor arrays, with their paths, in
// order.
func leaves(path string, value any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) { walk(path, value, yield) }
}

func walk(path string, value any, yield func(string, any) bool) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, k := range sortedKeys(value) {
			if !walk(join(path, k), value[k], yield) {
				return false
			}
		}
	case []any:
		for i := range value {
			if !walk(at(path, i), value[i], yield) {
				return false
			}
		}
	default:
		return yield(path, value)
	}
	return true
}

// normalize copies a value to the types that free returns: maps, slices, strings, booleans,
// int64, float64 and nil.
func normalize(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case int:
		return parseNumber(strconv.Itoa(v))
	case int64:
		return parseNumber(strconv.FormatInt(v, 10))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%v is not a number that JSON has", v)
		}
		return number(v), nil
	case json.Number:
		return parseNumber(v.String())
	case []any:
		return normalizeList(v)
	case map[string]any:
		return normalizeMap(v)
	}
	return nil, fmt.Errorf("a value of Go type %T has no JSON form here", v)
}

func normalizeList(list []any) (any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		n, err := normalize(v)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out[i] = n
	}
	return out, nil
}

func normalizeMap(m map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n, err := normalize(m[k])
		if err != nil {
			return nil, fmt.Errorf("[%.80q]: %w", k, err)
		}
		out[k] = n
	}
	return out, nil
}
