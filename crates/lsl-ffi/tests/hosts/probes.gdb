# Prints what each probe says, a line each: fields between bars. Spec: audit §2.
set pagination off
set confirm off
set language c
set print thread-events off
break main
run
info probes stap crypto_auditing
info probes stap lsl

# $array of $n elements { key, value, size }
define elements
  set $i = 0
  while $i < $n
    set $element = (unsigned long *) ($array + 24 * $i)
    if $element[2] == -2
      printf "|%s=%lu", (char *) $element[0], $element[1]
    else
      if $element[2] == -1
        printf "|%s=%s", (char *) $element[0], (char *) $element[1]
      else
        printf "|%s=", (char *) $element[0]
        set $byte = 0
        while $byte < $element[2]
          printf "%02x", ((unsigned char *) $element[1])[$byte]
          set $byte = $byte + 1
        end
      end
    end
    set $i = $i + 1
  end
  printf "\n"
end

break -probe-stap crypto_auditing:new_context_with_data
commands
  silent
  printf "|new|%lu|%lu", $_probe_arg0, $_probe_arg1
  set $array = $_probe_arg2
  set $n = $_probe_arg3
  elements
  continue
end
break -probe-stap crypto_auditing:data
commands
  silent
  printf "|data|%lu", $_probe_arg0
  set $array = $_probe_arg1
  set $n = $_probe_arg2
  elements
  continue
end
break -probe-stap lsl:push
commands
  silent
  printf "|push|%lu|%lu|%lu|%lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3
  continue
end
break -probe-stap lsl:send
commands
  silent
  printf "|send|%lu|%lu|%lu|%lu|%lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3, $_probe_arg4
  continue
end
break -probe-stap lsl:pull
commands
  silent
  printf "|pull|%lu|%lu|%lu|%lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3
  continue
end
continue
printf "|exit|%d\n", $_exitcode
