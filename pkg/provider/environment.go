package provider

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Environment returns the variables that tell an agent its identity and the servers' addresses.
// A provider that starts agents itself adds those specific to the place, such as the
// directories.
func (spec Spec) Environment() map[string]string {
	env := map[string]string{
		"NSTANCE_SERVER_REGISTRATION_ADDR": strings.Join(spec.Bootstrap.RegistrationAddrs, ","),
		"NSTANCE_SERVER_AGENT_ADDR":        strings.Join(spec.Bootstrap.AgentAddrs, ","),
		"NSTANCE_INSTANCE_ID":              string(spec.ID),
		"NSTANCE_INSTANCE_KIND":            spec.ID.Kind(),
		"NSTANCE_INSTANCE_HOSTNAME":        spec.Hostname,
	}
	if d := spec.Bootstrap.ReportInterval; d > 0 {
		env["NSTANCE_REPORT_INTERVAL"] = d.String()
	}
	return env
}

// managed lists the variables that only providers set.
func managed() []string {
	return []string{
		"NSTANCE_SERVER_REGISTRATION_ADDR", "NSTANCE_SERVER_AGENT_ADDR", "NSTANCE_INSTANCE_ID", "NSTANCE_INSTANCE_KIND",
		"NSTANCE_INSTANCE_HOSTNAME", "NSTANCE_INSTANCE_IPV4", "NSTANCE_IDENTITY_DIR", "NSTANCE_KEYS_DIR", "NSTANCE_RECV_DIR",
		"NSTANCE_REPORT_INTERVAL",
	}
}

// CheckEnvironment returns the problems of variables set at the config path field: invalid
// names, and variables that the provider sets.
func CheckEnvironment(field string, env map[string]string) (wrong FieldErrors) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			wrong.Addf(field, "%.80q is not a valid variable name", name)
		case slices.Contains(managed(), name):
			wrong.Addf(field+"."+name, "the provider sets this variable itself")
		case strings.ContainsRune(env[name], 0):
			wrong.Addf(field+"."+name, "the value holds a zero byte")
		}
	}
	return wrong
}

// OpenVariables returns the variables that args may always set: the level and the format of the log, and
// the polling interval for termination notices.
func OpenVariables() []string {
	return []string{"NSTANCE_DEBUG", "NSTANCE_LOG_FORMAT", "NSTANCE_SPOT_POLL_INTERVAL"}
}

// variable matches a portable variable name.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckArgsEnv checks a list of variables that args may set besides OpenVariables: names, or
// prefixes followed by a star.
func CheckArgsEnv(field string, allowed []string) (wrong FieldErrors) {
	for n, pattern := range allowed {
		at := fmt.Sprintf("%s[%d]", field, n)
		name, _ := strings.CutSuffix(pattern, "*")
		switch {
		case !variable.MatchString(name):
			wrong.Addf(at, "%.80q is not valid: want a variable name such as LOG_LEVEL, or a prefix such as APP_*", pattern)
		case slices.Contains(managed(), pattern):
			wrong.Addf(at, "the provider sets %s itself", pattern)
		}
	}
	return wrong
}

// CheckOpen is CheckEnvironment for variables from args. Groups can be changed over the API,
// and a variable can change what the agent or any program does, so only harmless variables and
// those allowed by the server's options are accepted.
func CheckOpen(field string, env map[string]string, allowed []string) FieldErrors {
	wrong := CheckEnvironment(field, env)
	open := append(OpenVariables(), allowed...)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if slices.Contains(managed(), name) || name == "" || strings.ContainsAny(name, "=\x00") {
			continue // reported by CheckEnvironment
		}
		if !variable.MatchString(name) || !slices.ContainsFunc(open, func(pattern string) bool { return stands(pattern, name) }) {
			wrong.Addf(field, "%.80q is not a variable that args may set: want one of options.args_env or %s", name, strings.Join(open, ", "))
		}
	}
	return wrong
}

// stands reports whether a pattern of CheckArgsEnv matches a variable.
func stands(pattern, name string) bool {
	if beginning, some := strings.CutSuffix(pattern, "*"); some {
		return beginning != "" && strings.HasPrefix(name, beginning)
	}
	return pattern == name
}

// MergeEnvironment merges layers, of which later ones take precedence, into sorted NAME=value
// strings.
func MergeEnvironment(layers ...map[string]string) []string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer)
	}
	list := make([]string, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		list = append(list, name+"="+merged[name])
	}
	return list
}
