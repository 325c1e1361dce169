package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// processes returns all running processes by PID.
func processes() (map[int]credentials, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	all := map[int]credentials{}
	for i := range infos {
		if infos[i].Proc.P_stat != zombie {
			all[int(infos[i].Proc.P_pid)] = credentialsIn(&infos[i])
		}
	}
	return all, nil
}

// credentialsOf returns the credentials of a running process, or errNoProcess.
func credentialsOf(pid int) (credentials, error) {
	if _, err := startOf(pid); err != nil {
		return credentials{}, err
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case errors.Is(unix.Kill(pid, 0), unix.ESRCH): // sysctl returns another error
		return credentials{}, errNoProcess
	case err != nil:
		return credentials{}, err
	default:
		return credentialsIn(info), nil
	}
}

func credentialsIn(info *unix.KinfoProc) credentials {
	effective := info.Eproc.Ucred.Uid
	return credentials{real: info.Eproc.Pcred.P_ruid, effective: effective, saved: info.Eproc.Pcred.P_svuid, files: effective}
}

// killUser kills the processes of a user; macOS has no call that kills them all at once.
func killUser(user uint32) error { return killEach(user) }
