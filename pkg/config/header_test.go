package config_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

func TestHeader(t *testing.T) {
	text := []byte(minimal)
	h := config.Header{Epoch: 3, Rev: 7, Writer: "a\nb\u2028"}
	stored := config.WithHeader(h, text)
	if _, err := config.Parse(stored); err != nil {
		t.Errorf("it is no static config any more: %v", err)
	}
	for name, c := range map[string]struct {
		data string
		want config.Header
		text string
		fail bool
	}{
		"as written": {data: string(stored), want: h, text: minimal},
		"twice":      {data: string(config.WithHeader(h, stored)), want: h, text: string(stored)},
		"none":       {data: minimal, text: minimal},
		"empty":      {},
		"a field of a later day": {
			data: "// {\"epoch\":1,\"rev\":2,\"writer\":\"w\",\"x\":{}}\n{}", want: config.Header{Epoch: 1, Rev: 2, Writer: "w"}, text: "{}",
		},
		"a comment":         {data: "// {not a header}\n{}", text: "// {not a header}\n{}"},
		"a comment of JSON": {data: "// {\"size\":1}\n{}", text: "// {\"size\":1}\n{}"},
		"nothing else":      {data: "// {\"epoch\":1}", text: "// {\"epoch\":1}"},
		"no epoch":          {data: "// {\"epoch\":1e30}\n{}", text: "// {\"epoch\":1e30}\n{}", fail: true},
		"a negative one":    {data: "// {\"epoch\":-1}\n{}", text: "// {\"epoch\":-1}\n{}", fail: true},
	} {
		got, rest, err := config.CutHeader([]byte(c.data))
		if got != c.want || string(rest) != c.text || (err != nil) != c.fail {
			t.Errorf("%s: %+v, %q, %v", name, got, rest, err)
		}
	}
}

func FuzzCutHeader(f *testing.F) {
	f.Add([]byte(minimal), uint64(1), uint64(2), "w")
	f.Add(config.WithHeader(config.Header{Epoch: math.MaxUint64, Rev: 1, Writer: "\"\n"}, nil), uint64(0), uint64(0), "")
	f.Add([]byte("// {\"epoch\":null}\n"), uint64(1), uint64(1), "\xff")
	f.Fuzz(func(t *testing.T, data []byte, epoch, rev uint64, writer string) {
		if h, rest, err := config.CutHeader(data); err != nil && (h != config.Header{} || !bytes.Equal(rest, data)) {
			t.Fatalf("a header that can't be read left %+v and %q", h, rest)
		}
		h, rest, err := config.CutHeader(config.WithHeader(config.Header{Epoch: epoch, Rev: rev, Writer: writer}, data))
		if err != nil || h.Epoch != epoch || h.Rev != rev || !bytes.Equal(rest, data) {
			t.Fatalf("%+v, %q, %v", h, rest, err)
		}
	})
}
