package config_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/config"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]struct {
		value time.Duration
		short string
	}{
		"0s":       {0, "0s"},
		"90s":      {90 * time.Second, "1m30s"},
		"1h0m0s":   {time.Hour, "1h"},
		"1h30m":    {90 * time.Minute, "1h30m"},
		"1h5s":     {time.Hour + 5*time.Second, "1h0m5s"},
		"30d":      {30 * day, "30d"},
		"1d12h":    {36 * time.Hour, "1d12h"},
		"36h":      {36 * time.Hour, "1d12h"},
		"0d":       {0, "0s"},
		"-5s":      {-5 * time.Second, "-5s"},
		"106751d":  {106751 * day, "106751d"},
		"1d100ms":  {day + 100*time.Millisecond, "1d100ms"},
		"20m":      {20 * time.Minute, "20m"},
		"100h0m0s": {100 * time.Hour, "4d4h"},
	} {
		var d config.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want.value || d.String() != want.short {
			t.Errorf("%q is %v (%v), %v: want %v (%s)", text, d.Std(), d, err, want.value, want.short)
		}
	}
	for _, text := range []string{
		"", "d", "30", "1.5d", "-1d", "1d-2h", "1d+2h", "12h1d", "1d1d", "30 d", "106752d", "106751d24h", "9999999999d", "5 seconds", "1D",
	} {
		var d config.Duration
		err := d.UnmarshalText([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "duration") {
			t.Errorf("%q gives %v, %v: want an error that says what a duration is", text, d, err)
		}
	}
}

func TestAge(t *testing.T) {
	var a config.Age
	if err := a.UnmarshalText([]byte("30d")); err != nil || a.Std() != 720*time.Hour || a.String() != "30d" {
		t.Errorf("30d is %v, %v", a.Std(), err)
	}
	if err := a.UnmarshalText(nil); err != nil || a != 0 || a.String() != "" {
		t.Errorf("empty is %v, %v: want off", a.Std(), err)
	}
	for _, text := range []string{"0s", "0d", "off"} {
		if err := a.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken as an age", text)
		}
	}
}

func TestDurationReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := config.Duration(rapid.Int64Range(math.MinInt64, math.MaxInt64).Draw(t, "nanoseconds"))
		var again config.Duration
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Fatalf("%d became %q became %d, %v", int64(d), d, int64(again), err)
		}
	})
}
