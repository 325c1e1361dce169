package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/fleet"
)

// decoder fills typed values from a syntax tree. It continues after a mistake, so that one pass
// finds all of them, and records which fields were set.
type decoder struct {
	text     []byte
	problems Problems
	seen     map[string]bool
	broken   []string // paths of the fields whose value is invalid

	// tolerant is for a text that a newer version may have written: unknown fields are
	// skipped, and passed is set.
	tolerant bool
	passed   bool
}

func newDecoder(text []byte) *decoder {
	return &decoder{text: text, seen: map[string]bool{}}
}

// failf reports a field that is left at zero, and suppresses further problems with it.
func (d *decoder) failf(path, format string, args ...any) {
	if !d.problems.full() {
		d.broken = append(d.broken, path)
	}
	d.problems.addf(path, format, args...)
}

func (d *decoder) decode(path string, v hujson.Value, into reflect.Value) {
	d.seen[path] = true
	literal, _ := v.Value.(hujson.Literal)
	if into.Type() == reflect.TypeFor[hujson.Value]() {
		into.Set(reflect.ValueOf(v)) // decoded on its own later
		return
	}
	if into.Kind() == reflect.Interface {
		if value := d.free(path, v); value != nil {
			into.Set(reflect.ValueOf(value))
		}
		return
	}
	if literal.Kind() == 'n' {
		d.failf(path, "null is not a value here: leave the field out")
		return
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		d.decode(path, v, into.Elem())
		return
	}
	switch into := into.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		d.fromText(path, v, into)
		return
	case *SubnetPool:
		d.subnetPool(path, v, into)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.object(path, v, into)
	case reflect.Map:
		d.mapping(path, v, into)
	case reflect.Slice:
		d.list(path, v, into)
	default:
		d.scalar(path, v, into)
	}
}

func (d *decoder) object(path string, v hujson.Value, into reflect.Value) {
	fields := map[string]reflect.Value{}
	collectFields(into, fields)
	for name, value := range d.members(path, v) {
		field, ok := fields[name]
		if !ok {
			d.unknown(path, name, fields)
			continue
		}
		d.decode(join(path, name), value, field)
	}
}

// collectFields collects the fields of a struct by name, including those of embedded structs.
func collectFields(of reflect.Value, into map[string]reflect.Value) {
	for i := range of.NumField() {
		field := of.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			collectFields(of.Field(i), into)
		case name != "" && name != "-":
			into[name] = of.Field(i)
		}
	}
}

// subnetPool decodes a pool that is written as the list of its subnets or as an object.
func (d *decoder) subnetPool(path string, v hujson.Value, into *SubnetPool) {
	switch v.Value.Kind() {
	case '[':
		d.list(path, v, reflect.ValueOf(&into.Subnets).Elem())
	case '{':
		d.object(path, v, reflect.ValueOf(into).Elem())
	default:
		d.mismatch(path, v, "an array of subnets, or an object with subnets and tenants")
	}
}

// unknown handles an unknown field. A name that differs from a known one only by case is a
// mistake even if tolerant: no version would define such a field.
func (d *decoder) unknown(path, name string, fields map[string]reflect.Value) {
	mistake := !d.tolerant
	for known := range fields {
		mistake = mistake || strings.EqualFold(known, name)
	}
	switch {
	case !mistake:
		d.passed = true
	case !d.problems.full():
		d.problems.addf(join(path, name), "unknown field %s", have(fields))
	}
}

// mapping keeps a key whose value is invalid, so that references to it are not reported as well.
func (d *decoder) mapping(path string, v hujson.Value, into reflect.Value) {
	kind := into.Type()
	if into.IsNil() {
		into.Set(reflect.MakeMap(kind))
	}
	for name, value := range d.members(path, v) {
		elem := reflect.New(kind.Elem()).Elem()
		d.decode(join(path, name), value, elem)
		into.SetMapIndex(reflect.ValueOf(name).Convert(kind.Key()), elem)
	}
}

func (d *decoder) list(path string, v hujson.Value, into reflect.Value) {
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		d.mismatch(path, v, "an array")
		return
	}
	list := reflect.MakeSlice(into.Type(), len(array.Elements), len(array.Elements))
	for i, element := range array.Elements {
		d.decode(at(path, i), element, list.Index(i))
	}
	into.Set(list)
}

// members yields an object's members in order, each key once.
func (d *decoder) members(path string, v hujson.Value) func(yield func(string, hujson.Value) bool) {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		d.mismatch(path, v, "an object")
		return func(func(string, hujson.Value) bool) {}
	}
	return func(yield func(string, hujson.Value) bool) {
		given := make(map[string]bool, len(object.Members))
		for _, member := range object.Members {
			name := member.Name.Value.(hujson.Literal).String()
			if given[name] {
				d.duplicate(join(path, name), member.Name.StartOffset)
				continue
			}
			given[name] = true
			if !yield(name, member.Value) {
				return
			}
		}
	}
}

func (d *decoder) duplicate(path string, offset int) {
	if !d.problems.full() { // finding the line scans the text
		d.problems.addf(path, "given more than once: again at %s", position(d.text, offset))
	}
}

func (d *decoder) fromText(path string, v hujson.Value, into encoding.TextUnmarshaler) {
	literal, _ := v.Value.(hujson.Literal)
	want, isNumber, isTime := errDuration, false, false
	switch into.(type) {
	case *fleet.Surge:
		want, isNumber = fleet.ErrSurge, literal.Kind() == '0' // a count may be written as a number
	case *time.Time:
		want, isTime = errTime, true
	}
	if literal.Kind() != '"' && !isNumber {
		d.mismatch(path, v, "a string: "+strings.TrimPrefix(want.Error(), "want "))
		return
	}
	err := into.UnmarshalText([]byte(literal.String()))
	if err != nil && isTime {
		err = fmt.Errorf("%.80q: %w", literal.String(), errTime)
	}
	if err != nil {
		d.failf(path, "%v", err)
	}
}

var errTime = errors.New("want a time such as 2006-01-02T15:04:05Z")

func (d *decoder) scalar(path string, v hujson.Value, into reflect.Value) {
	literal, _ := v.Value.(hujson.Literal)
	switch kind := literal.Kind(); {
	case into.Kind() == reflect.String && kind == '"':
		into.SetString(literal.String())
	case into.Kind() == reflect.Bool && (kind == 't' || kind == 'f'):
		into.SetBool(literal.Bool())
	case into.Kind() == reflect.Float64 && kind == '0':
		d.number(path, literal, into)
	case into.CanInt() && kind == '0':
		d.wholeNumber(path, v, literal, into)
	case into.CanUint() && kind == '0':
		d.count(path, v, literal, into)
	default:
		d.mismatch(path, v, wanted(into.Kind()))
	}
}

func (d *decoder) number(path string, literal hujson.Literal, into reflect.Value) {
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		d.failf(path, "%.80s is outside the range of numbers", literal)
		return
	}
	into.SetFloat(f)
}

// wholeNumber accepts 3.0 and 3e0 as 3.
func (d *decoder) wholeNumber(path string, v hujson.Value, literal hujson.Literal, into reflect.Value) {
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact {
		d.mismatch(path, v, wanted(into.Kind()))
		return
	}
	into.SetInt(int64(f))
}

func (d *decoder) count(path string, v hujson.Value, literal hujson.Literal, into reflect.Value) {
	n, err := strconv.ParseUint(string(literal), 10, 64)
	if err != nil {
		d.mismatch(path, v, wanted(into.Kind()))
		return
	}
	into.SetUint(n)
}

func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint64:
		return "a whole number, not negative"
	default:
		return "a whole number"
	}
}

func (d *decoder) mismatch(path string, v hujson.Value, want string) {
	d.failf(path, "got %s: want %s", describe(v), want)
}

func describe(v hujson.Value) string {
	literal, ok := v.Value.(hujson.Literal)
	switch {
	case !ok && v.Value.Kind() == '{':
		return "an object"
	case !ok:
		return "an array"
	case literal.Kind() == '"':
		return fmt.Sprintf("the string %.80q", literal.String())
	case literal.Kind() == '0':
		return fmt.Sprintf("the number %.80s", literal)
	}
	return string(literal)
}
