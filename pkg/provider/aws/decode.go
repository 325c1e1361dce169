package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
)

// decoder decodes args into an SDK input, by field name. It never looks up methods of SDK types
// by reflection: the linker would keep them all.
type decoder struct {
	wrong provider.FieldErrors
	enums map[reflect.Type][]string
}

// decodeArgs decodes args into a struct. hidden has the fields that args can't set, and why.
func decodeArgs(args map[string]any, into any, hidden map[string]string) provider.FieldErrors {
	d := decoder{enums: enums()}
	plain, err := normal(args)
	if err != nil {
		d.wrong.Addf("args", "%v", err)
		return d.wrong
	}
	for _, name := range slices.Sorted(maps.Keys(plain)) {
		if why, ok := hidden[name]; ok {
			d.wrong.Addf("args."+name, "%s", why)
			delete(plain, name)
		}
	}
	d.object("args", plain, reflect.ValueOf(into).Elem(), hidden)
	return d.wrong
}

// normal converts args to plain JSON types.
func normal(args map[string]any) (plain map[string]any, err error) {
	data, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&plain)
	return plain, err
}

func (d *decoder) object(path string, values map[string]any, into reflect.Value, hidden map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field, ok := into.Type().FieldByName(name)
		if !ok || !field.IsExported() {
			d.wrong.Addf(fmt.Sprintf("%s.%.80s", path, name), "%s", missing(into.Type(), name, hidden))
			continue
		}
		d.value(path+"."+name, values[name], into.FieldByIndex(field.Index))
	}
}

// missing describes the valid fields for an unknown name.
func missing(t reflect.Type, name string, hidden map[string]string) string {
	var have []string
	for i := range t.NumField() {
		f := t.Field(i)
		if _, no := hidden[f.Name]; no || !f.IsExported() {
			continue
		}
		if strings.EqualFold(f.Name, name) {
			return "no such field: want " + f.Name
		}
		have = append(have, f.Name)
	}
	slices.Sort(have)
	return "no such field (have: " + strings.Join(have, ", ") + ")"
}

// value decodes one field of any type.
func (d *decoder) value(path string, value any, into reflect.Value) {
	switch into.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(into.Type().Elem())
		d.value(path, value, fresh.Elem())
		into.Set(fresh)
	case reflect.Struct:
		d.structure(path, value, into)
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			d.mismatch(path, value, "a list")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for n, element := range list {
			d.value(fmt.Sprintf("%s[%d]", path, n), element, into.Index(n))
		}
	case reflect.String:
		d.text(path, value, into)
	case reflect.Bool:
		yes, ok := value.(bool)
		if !ok {
			d.mismatch(path, value, "true or false")
			return
		}
		into.SetBool(yes)
	case reflect.Int32, reflect.Int64:
		d.whole(path, value, into)
	case reflect.Float32, reflect.Float64:
		number, ok := value.(json.Number)
		f, err := number.Float64()
		if !ok || err != nil {
			d.mismatch(path, value, "a number")
			return
		}
		into.SetFloat(f)
	default:
		d.wrong.Addf(path, "can't be set by args")
	}
}

func (d *decoder) structure(path string, value any, into reflect.Value) {
	if into.Type() == reflect.TypeFor[time.Time]() {
		text, _ := value.(string)
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			d.mismatch(path, value, "a time such as 2030-01-02T15:04:05Z")
			return
		}
		into.Set(reflect.ValueOf(at))
		return
	}
	object, ok := value.(map[string]any)
	if !ok {
		d.mismatch(path, value, "an object")
		return
	}
	d.object(path, object, into, nil)
}

func (d *decoder) text(path string, value any, into reflect.Value) {
	text, ok := value.(string)
	if !ok {
		d.mismatch(path, value, "a string")
		return
	}
	if valid, listed := d.enums[into.Type()]; listed && !slices.Contains(valid, text) {
		d.wrong.Addf(path, "%.80q is not valid: want %s", text, strings.Join(valid, ", "))
		return
	}
	into.SetString(text)
}

func (d *decoder) whole(path string, value any, into reflect.Value) {
	number, ok := value.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, into.Type().Bits())
	if !ok || err != nil {
		d.mismatch(path, value, "a whole number of "+strconv.Itoa(into.Type().Bits())+" bits")
		return
	}
	into.SetInt(n)
}

// mismatch reports a value of the wrong type.
func (d *decoder) mismatch(path string, value any, want string) {
	var got string
	switch value := value.(type) {
	case nil:
		got = "null"
	case string:
		got = fmt.Sprintf("the string %.80q", value)
	case bool:
		got = strconv.FormatBool(value)
	case json.Number:
		got = fmt.Sprintf("the number %.80s", value.String())
	case []any:
		got = "a list"
	default:
		got = "an object"
	}
	d.wrong.Addf(path, "got %s: want %s", got, want)
}

// enums lists the values of commonly set fields, so that typos are found before a launch. EC2
// validates the rest.
func enums() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		enumType[types.HttpTokensState]():               texts(types.HttpTokensState("").Values()),
		enumType[types.InstanceMetadataEndpointState](): texts(types.InstanceMetadataEndpointState("").Values()),
		enumType[types.InstanceMetadataProtocolState](): texts(types.InstanceMetadataProtocolState("").Values()),
		enumType[types.InstanceMetadataTagsState]():     texts(types.InstanceMetadataTagsState("").Values()),
		enumType[types.MarketType]():                    texts(types.MarketType("").Values()),
		enumType[types.SpotInstanceType]():              texts(types.SpotInstanceType("").Values()),
		enumType[types.InstanceInterruptionBehavior]():  texts(types.InstanceInterruptionBehavior("").Values()),
		enumType[types.ShutdownBehavior]():              texts(types.ShutdownBehavior("").Values()),
		enumType[types.VolumeType]():                    texts(types.VolumeType("").Values()),
		enumType[types.Tenancy]():                       texts(types.Tenancy("").Values()),
	}
}

func enumType[T ~string]() reflect.Type { return reflect.TypeFor[T]() }

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for n, v := range values {
		out[n] = string(v)
	}
	return out
}
