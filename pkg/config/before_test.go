package config_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

// TestBefore: an accepted config keeps the text before, and is read as ever.
func TestBefore(t *testing.T) {
	h := config.Header{Epoch: 3, Rev: 7, Writer: "w"}
	before, text := []byte(strings.Repeat("earlier\n", 1000)), []byte("{\n}\n")
	data := config.WithBefore(h, config.Pack(before), text)
	if got, rest, err := config.CutHeader(data); err != nil || got != h || !bytes.Equal(rest, text) {
		t.Errorf("%+v, %q, %v", got, rest, err)
	}
	if len(data) > 500 {
		t.Errorf("%d bytes", len(data))
	}
	if got, err := config.PackedBefore(data).Unpack(); err != nil || !bytes.Equal(got, before) {
		t.Errorf("%q, %v", got, err)
	}
	if !bytes.Equal(config.WithBefore(h, nil, text), config.WithHeader(h, text)) {
		t.Error("without a text before, the header differs")
	}
	for _, other := range []string{"", "{}", "// {}\n{}", "// {\"before\":5}\n{}", string(config.WithHeader(h, text))} {
		if p := config.PackedBefore([]byte(other)); p != nil {
			t.Errorf("%q has %q", other, p)
		}
	}
	if _, err := config.Pack(make([]byte, config.MaxSize+1)).Unpack(); !errors.Is(err, config.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// FuzzBefore: nothing that the first line of an accepted config may contain does harm.
func FuzzBefore(f *testing.F) {
	f.Add(config.WithBefore(config.Header{Epoch: 1}, config.Pack([]byte("{}")), []byte("{}")))
	f.Add([]byte("// {\"epoch\":1,\"before\":\"H4sI\"}\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := config.PackedBefore(data).Unpack()
		if err == nil && len(text) > config.MaxSize {
			t.Errorf("%d bytes", len(text))
		}
	})
}
