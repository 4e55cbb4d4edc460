#!/usr/bin/env bash
# parity.sh ROWS - prints the table of what the parity suites have compared: scenario by
# containerd and OCI runtime. ROWS is the file that they add to when LAZYCG_PARITY_ROWS names it.
# "equal" is to the stock shim with runc; a star stands where crun itself differs, which is told
# below; "-" was not run.
set -euo pipefail
awk -F ' *[|] *' '
    $1 != "parity" { next }
    $3 == "stock" { next }
    {
        sub(/^containerd /, "", $2)
        column = $2 " " $4
        if (!(column in columns)) { columns[column]; order[++n] = column }
        if (!($5 in scenarios)) { scenarios[$5]; rows[++m] = $5 }
        mark = $6
        if ($6 ~ /^equal but for /) {
            mark = "equal*"
            note = $5 ", " $4 ": " $6
            if (!(note in noted)) { noted[note]; notes[++k] = note }
        }
        cell[$5, column] = mark
    }
    END {
        line = "| scenario |"; rule = "| --- |"
        for (c = 1; c <= n; c++) { line = line " " order[c] " |"; rule = rule " --- |" }
        print line; print rule
        for (r = 1; r <= m; r++) {
            line = "| " rows[r] " |"
            for (c = 1; c <= n; c++)
                line = line " " (((rows[r], order[c]) in cell) ? cell[rows[r], order[c]] : "-") " |"
            print line
        }
        for (i = 1; i <= k; i++) print "* " notes[i]
    }
' "$1"
