package main

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	const config = `{"ociVersion":"1.0.2","process":{
		"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"]},
		"oomScoreAdj":-500,"rlimits":[{"type":"RLIMIT_NOFILE","soft":1024,"hard":18446744073709551615},{"type":"RLIMIT_CORE","soft":0,"hard":9}]},
		"linux":{"resources":{"memory":{"limit":9007199254740993}}}}`
	got, err := fit([]byte(config), 1, 20000)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"bounding":["CAP_CHOWN"]`, `"effective":[]`, `"oomScoreAdj":0`, `"hard":20000,"soft":1024,"type":"RLIMIT_NOFILE"`,
		`"hard":9,"soft":0,"type":"RLIMIT_CORE"`, `"limit":9007199254740993`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	whole, err := fit([]byte(config), ^uint64(0), 20000)
	if err != nil || !strings.Contains(string(whole), `"oomScoreAdj":-500`) || !strings.Contains(string(whole), "18446744073709551615") {
		t.Errorf("where nothing lacks: %v: %s", err, whole)
	}
	if _, err := fit([]byte("{"), 1, 1); err == nil {
		t.Error("half a configuration was taken")
	}
}

// TestFitProcess: another process of a container has a configuration of its own.
func TestFitProcess(t *testing.T) {
	got, err := fit([]byte(`{"args":["sh"],"capabilities":{"permitted":["CAP_SYS_RESOURCE"]},"oomScoreAdj":-1}`), 0, 1)
	if want := `{"args":["sh"],"capabilities":{"permitted":[]},"oomScoreAdj":0}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--root /run create --bundle /a --pid-file p id": "/a/config.json",
		"create --bundle=/a id":                          "/a/config.json",
		"run -b /a id":                                   "/a/config.json",
		"run id":                                         "config.json",
		"exec --process /p --detach id":                  "/p",
		"delete --force id":                              "",
	} {
		if got := settings(strings.Fields(args)); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func FuzzFit(f *testing.F) {
	f.Add([]byte(`{"process":{"capabilities":{"bounding":["CAP_CHOWN"]},"rlimits":[{"type":"RLIMIT_NOFILE","soft":1}],"oomScoreAdj":-1}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		once, err := fit(config, 1, 100)
		if err != nil {
			return
		}
		if _, err := fit(once, 1, 100); err != nil {
			t.Errorf("what came out is not taken: %v", err)
		}
	})
}
